"""How experts are spread over ranks."""


def spread(experts: int, ranks: int) -> tuple[int, ...]:
    """Experts on each rank: counts differ by one at most, earlier ranks hold more (30 on 8: six of 4, two of 3)."""
    each, more = divmod(experts, ranks)
    return tuple(each + (rank < more) for rank in range(ranks))


def worst_over_mean(experts: int, ranks: int) -> float:
    """Experts on the fullest rank over the mean; 1.0 where they divide."""
    return -(-experts // ranks) * ranks / experts
