"""Floor 2: the columnar timeline that simulator, trainer and trace readers all produce, and its interval algebra."""
