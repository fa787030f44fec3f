"""Old import paths that still work; nothing new is written here."""
