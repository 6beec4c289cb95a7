"""What in a row of a measured table cannot be, beyond single fields: degrees, batch and figures that contradict."""

from meshwright.files.rows import Row

_POSITIVE = (
    "params_b", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "seq_len", "gpus",
    "gpus_per_node", "dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch", "global_batch", "step_time_s",
    "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_percent", "hfu_percent", "peak_memory_gib",
)  # fmt: skip
_APART = 1.5  # two printed figures that differ by more than this factor are not of the same run or unit
_LONGEST_STEP_S = 86_400.0
_MOST = {
    "layers": 10_000, "hidden": 10**6, "heads": 10**5, "vocab": 10**8, "experts": 10**5, "seq_len": 10**8,
    "gpus": 10**7, "params_b": 10**6, "gpus_per_node": 10**5,
}  # fmt: skip
"""Far more than anybody trained with: beyond, a count is a slip."""
_MOST_ACTIONS = 10**6  # forward passes of a pipeline in one step: micro-batches times stages


def nonsense(row: Row) -> tuple[str, ...]:
    """Every reason why the row cannot be what it says; empty when it adds up. Silent about what is merely missing."""
    found = list(row.problems)
    found += [f"{name} is 0" for name in _POSITIVE if getattr(row, name) == 0]
    found += [
        f"{name} is {getattr(row, name):g}: more than {most:,}"
        for name, most in _MOST.items()
        if (getattr(row, name) or 0) > most
    ]
    if found:
        return tuple(found)
    return (*_degrees(row), *_batch(row), *_figures(row))


def _degrees(row: Row) -> list[str]:
    found = []
    if row.zero_stage is not None and row.zero_stage > 3:
        found.append(f"zero_stage {row.zero_stage}: stages are 0 to 3")
    degrees = {"dp": row.dp, "tp": row.tp, "pp": row.pp, "cp": row.cp}
    known = {name: value for name, value in degrees.items() if value is not None}
    product = 1
    for value in known.values():
        product *= value
    equation = " · ".join(f"{name} {value}" for name, value in known.items())
    if row.gpus is not None and known:
        # a context degree that is not stated is 1 unless the others leave room for one
        whole = row.dp is not None and row.tp is not None and row.pp is not None
        if (whole and row.cp is not None and product != row.gpus) or row.gpus % product:
            found.append(f"{equation} = {product}, but gpus is {row.gpus}")
        elif whole and row.cp is None and product != row.gpus:
            found.append(f"{equation} = {product}, but gpus is {row.gpus} and no cp is stated")
    if row.layers is not None and row.pp is not None and row.pp > 2 * row.layers + 2:
        found.append(f"pp {row.pp} with {row.layers} layers: not a unit for every stage")
    return found


def _batch(row: Row) -> list[str]:
    if row.global_batch is None or row.dp is None:
        return []
    micro = row.micro_batch or 1
    if row.global_batch % (micro * row.dp):
        product = f"micro_batch {micro} · dp {row.dp}" if row.micro_batch else f"dp {row.dp}"
        return [f"global_batch {row.global_batch} is no multiple of {product}"]
    actions = row.global_batch // (micro * row.dp) * (row.pp or 1) * (row.vpp or 1)
    return [f"{actions:.3g} passes through a stage in one step"] if actions > _MOST_ACTIONS else []


def _figures(row: Row) -> list[str]:
    found = []
    for name in ("mfu_percent", "hfu_percent"):
        value = getattr(row, name)
        if value is not None and value > 100:
            found.append(f"{name} is {value:g}: more than the peak")
    if row.step_time_s is not None and row.step_time_s > _LONGEST_STEP_S:
        found.append(f"step_time_s is {row.step_time_s:g}: longer than a day (milliseconds?)")
    rate, gpus, batch, length = row.tokens_per_s_per_gpu, row.gpus, row.global_batch, row.seq_len
    if row.step_time_s and rate and gpus and batch and length:
        implied = batch * length / (row.step_time_s * gpus)
        if not 1 / _APART < implied / rate < _APART:
            found.append(
                f"step_time_s {row.step_time_s:g} means {implied:,.0f} tokens/s/GPU, tokens_per_s_per_gpu says "
                f"{rate:,.0f}: one of them is in another unit"
            )
    return found
