"""One file a parallel technique, applied in one visible order."""
