"""What the service does by itself, again and again: one file a duty. `app.build` names each of them."""
