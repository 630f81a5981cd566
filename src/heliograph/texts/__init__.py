"""What `domain/` decides by name, said to people: as pure as they are."""
