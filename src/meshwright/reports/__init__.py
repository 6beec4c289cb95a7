"""Floor 7: what people read: the page, the timeline pictures, the terminal."""
