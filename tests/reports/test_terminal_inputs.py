"""Figures of tables, snapshots and logs in a terminal."""

from tests.reports.test_terminal import shown

from meshwright.reports.terminal_inputs import tables_view


def test_rows_become_a_table_and_figures_lines() -> None:
    points = [{"devices": 8, "efficiency": 1.0, "step_s": 0.5}, {"devices": 16, "efficiency": 0.333, "step_s": None}]
    text = shown(tables_view({"rates.csv": [{"scaling": "weak", "points": points, "held": {"0": 3}}]}))
    assert "rates.csv" in text
    assert "scaling weak" in text
    assert "33.3 %" in text
    assert "500.0 ms" in text
    assert "not known" in text
    assert "held  0: 3" in text


def test_what_was_not_recorded_is_not_zero() -> None:
    text = shown(tables_view({"s.pickle": [{"reserved_mib": 6900.0, "peak_active_mib": None}]}))
    assert "reserved mib 6,900" in text
    assert "peak active mib not known" in text
    assert tables_view({"x": ["words"]}) == []
