"""Pure rules of templates: syntax, values, rendering, lint, approval."""
