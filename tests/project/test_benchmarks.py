"""What pages say of the kept figures, and the check of them."""

from benchmarks import check, report


def test_each_line_above_one_is_told_once_and_no_reason_is_left_over() -> None:
    lines = report.all_slower()
    assert len({line.what for line in lines}) == len(lines)
    assert all([line.ratio > 1 and report.OF_PEERS.match(line.peer) for line in lines])
    files = {path.stem for path in report.KEPT.glob("*.json")}
    unused = {r for r in report.REASONS if r not in files and not any([line.what.startswith(r) for line in lines])}
    assert not unused, "these lines are not slower any more: take their reasons out"
    assert report.PAGE.read_text() == report.page(), "python -m benchmarks --pages"


def test_a_check_finds_its_cases_and_what_is_kept_of_them() -> None:
    for part, whats in check.chosen().items():
        cases = list(check.module_of(part).cases(False))
        names = {case.what: {f"{case.what}: {measure}" for measure in case.measures} for case in cases}
        assert all([what in names or any([what in others for others in names.values()]) for what in whats])
    row = check.Row("step", "nngrad: 1.00 ms", "jax, by hand: 2.00 ms", 0.5)
    assert check.key_of(row._asdict()) == ("step", "nngrad", "jax, by hand")
    assert not check.Line(row, 0.46).worse and check.Line(row, 0.45).worse
