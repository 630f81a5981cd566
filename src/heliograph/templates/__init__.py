"""Templates and layouts: policy, storage and use cases."""
