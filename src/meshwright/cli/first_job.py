"""The job that `init` writes: this machine's devices, a small model that trains on them, and every key explained."""

from meshwright.basics.quantities import GIB
from meshwright.cluster.local import available_devices, local_cluster

_FEWEST_WORKERS = 2  # CPU workers: one alone has no layout to choose


def detected() -> dict[str, object]:
    """What this machine has: its GPUs, or its cores as workers, and the GiB of each."""
    gpus = available_devices()
    cluster = local_cluster(gpus)
    if cluster.device.kind == "cpu" and gpus < _FEWEST_WORKERS:
        gpus = _FEWEST_WORKERS
        cluster = local_cluster(gpus)
    return {
        "device": cluster.device.name, "kind": cluster.device.kind, "cores": cluster.cores, "gpus": gpus,
        "memory_gib": round(cluster.memory_bytes / GIB, 1),
    }  # fmt: skip


_TEXT = """\
# A job for meshwright. `meshwright check {name}` says whether it is valid, `meshwright plan {name} -o plan.toml` ranks
# the layouts, `meshwright train plan.toml` trains, `meshwright tune {name}` runs the whole loop.
format = 1

[model]                        # one of config, name and params, or plain dimensions as here
# config = "config.json"       # a Hugging Face config.json, or a folder with one
# name = "llama-3-8b"          # a shape of the catalogue
# params = "1.2B"              # a sensible shape is proposed
label = "small"
layers = 8
hidden = 256
heads = 8
kv_heads = 4
vocab = 4096

[cluster]                      # this machine: {device}, {memory_gib} GiB a worker
gpu = "local"                  # or a device of the catalogue such as "A100-40GB-SXM"
gpus = {gpus}
# gpus_per_node = 8            # on a cluster
# intra_node = "nvlink3"       # catalogue names or GB/s
# inter_node = "ib-hdr"
# memory_gib = 40              # GiB a rank may use

[batch]                        # global = micro_batch * micro_batches * dp
global = {batch}
seq_len = 128
# micro_batch = 1              # left out: chosen

[training]
precision = "{precision}"             # fp32 | fp16 | bf16 | fp8 | mxfp8 | nvfp4
optimizer = "adamw"
lr = 1e-3
lr_schedule = "constant"       # constant | cosine | linear | wsd
warmup = 5                     # steps
clip = 1.0                     # global gradient norm
steps = 20

# [data]
# path = "texts/"              # left out: the text of Python's own sources
# pack = "stream"              # stream | documents | pad: whether attention crosses documents

[layout]                       # what is given is fixed, what is not is searched
# dp = 2
# tp = 1
# pp = 1
# zero = 1                     # ZeRO stage 0 to 3
# schedule = "1f1b"            # gpipe | 1f1b | interleaved | looped-bfs | zb-h1 | zbv | dualpipev
# recompute = "none"           # none | selective | full
# stages = [["embed", "layers.0-3"], ["layers.4-7", "head"]]

[search]
runnable_by = "meshwright"     # meshwright | megatron | torchtitan | deepspeed | any

[tune]                         # what the loop may change although it is given above
# change = ["recompute", "stages", "micro_batch"]
max_changes = 2
"""


def first_job(found: dict[str, object], name: str = "job.toml") -> str:
    """The text of the job for what was detected."""
    gpus = found["gpus"]
    assert isinstance(gpus, int)
    precision = "bf16" if found["kind"] == "gpu" else "fp32"
    return _TEXT.format(**found, name=name, batch=4 * gpus, precision=precision)
