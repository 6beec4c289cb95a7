"""Floor 5: training on PyTorch's distributed engine. The only room that imports torch."""
