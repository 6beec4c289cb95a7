"""Floor 5: other frameworks' configurations, one file a framework."""
