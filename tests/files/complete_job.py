"""A job whose layout is complete: two replicas of two stages."""

COMPLETE = """
[model]
layers = 4
hidden = 64
heads = 8
vocab = 512
[cluster]
gpu = "H100-80GB-SXM"
gpus = 4
[batch]
global = 16
seq_len = 32
micro_batch = 2
[layout]
dp = 2
tp = 1
pp = 2
schedule = "1f1b"
stages = [["embed", "layers.0-1"], ["layers.2-3", "head"]]
"""
