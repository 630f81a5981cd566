"""Pure rules of templates: language, values, rendering, lint, approval."""
