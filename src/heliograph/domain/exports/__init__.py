"""What people take along from another service: its exports, read into what we keep."""
