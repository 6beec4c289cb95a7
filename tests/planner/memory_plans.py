"""Plans whose memory is asked about, written as jobs."""

from meshwright.files.job import parse_job
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import plan_of

SEVEN_B = """
[model]
layers = 32
hidden = 4096
heads = 32
kv_heads = 32
ffn_hidden = 11008
vocab = 32000
tied = false
[cluster]
gpu = "H100-80GB-SXM"
gpus = 8
[batch]
global = 64
seq_len = 4096
micro_batch = 2
[training]
precision = "bf16"
gradient_dtype = "fp32"
[layout]
dp = 8
tp = 1
pp = 1
zero = 1
[search]
runnable_by = "megatron"
"""
"""32 layers, hidden 4096, distributed optimizer over 8, fp32 gradients, no recompute."""


_TABLES = {
    "model": ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab"),
    "cluster": ("gpu", "gpus", "memory_gib"),
    "batch": ("global", "seq_len", "micro_batch"),
    "training": ("precision", "optimizer", "gradient_dtype"),
    "search": ("runnable_by",),
}


def with_values(text: str, **values: object) -> Plan:
    """The plan with keys given anew, named without their table; [layout] has whatever no other table has."""
    table = {key: name for name, keys in _TABLES.items() for key in keys}
    spelled = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}
    return plan_of(parse_job(text, overrides=[f"{table.get(k, 'layout')}.{k}={v}" for k, v in spelled.items()]))


def seven_b(**values: object) -> Plan:
    """The 7B on 8 GPUs with keys given anew."""
    return with_values(SEVEN_B, **values)


def pipeline(stages: int, layers: int = 16, **values: object) -> Plan:
    """A wide model in `stages` even stages of one replica, one GPU each."""
    each = layers // stages
    cut = [f'"layers.{s * each}-{(s + 1) * each - 1}"' for s in range(stages)]
    cut[0], cut[-1] = f'"embed", {cut[0]}', f'{cut[-1]}, "head"'
    text = f"""
[model]
layers = {layers}
hidden = 2048
heads = 16
kv_heads = 16
ffn_hidden = 5632
vocab = 32000
[cluster]
gpu = "A100-40GB-SXM"
gpus = {stages}
inter_node = "ib-hdr"
[batch]
global = 64
seq_len = 2048
micro_batch = 2
[layout]
dp = 1
tp = 1
pp = {stages}
schedule = "1f1b"
stages = [{", ".join(f"[{stage}]" for stage in cut)}]
[search]
runnable_by = "any"
"""
    return with_values(text, **values)
