"""Floor 8: the command line, one thin file a verb."""
