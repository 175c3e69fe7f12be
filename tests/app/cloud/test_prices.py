"""Catalog files become dated prices; a file of another shape, and impossible prices, are refused by line."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from relay.app.cloud.machines import shipped
from relay.app.cloud.prices import STALE_DAYS, Catalog, Price, Prices, parse, read_catalog
from relay.app.renting import BadCatalog
from relay.core.errors import BadConfig, UsageError
from tests.app.cli import Desk
from tests.facts import raising

HEAD = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"
ROWS = """cpu,,0,4,16,0.1,north,,
one,H100,1.0,16,200,2.95,north,"{'Gpus': [{'Name': 'H100'}]}",1.25
eight,H100,8,128,1600,24.00,north,,11.00
eight-b,H100,8,128,1600,23.60,"south, EU",,nan
eight-c,H100,8,128,1600,,west,,9.50
pcie_h100,H100,1,16,200,1.00,north,,0.50
old,K80,1,16,200,0.20,north,,0.00
"""


def catalog(folder: Path, text: str = HEAD + ROWS, cloud: str = "acme") -> Path:
    path = folder / cloud / "vms.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_the_lowest_price_of_each_shape_is_kept_with_its_region(tmp_path: Path) -> None:
    one, eight = read_catalog(catalog(tmp_path), "acme", shipped().cards)
    assert (one.gpus, one.on_demand, one.spot, one.instance) == (1, 2.95, 1.25, "one")
    about = (eight.on_demand, eight.region, eight.instance, eight.spot, eight.spot_region)
    assert about == (23.60, "south, EU", "eight-b", 9.50, "west")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("name,price\nx,1\n", "AcceleratorName"),
        (HEAD + "x,H100,1,1,1,-2.95,north,,\n", "line 2"),
        (HEAD + "a,H100,1,1,1,2,north,,\nx,H100,1,1,1,cheap,north,,\n", "line 3"),
        (HEAD + "x,H100,1,1,1,inf,north,,\n", "inf"),
        (HEAD + "x,H100,1,1,1,1e308,north,,\n", "1e308"),
        (HEAD + 'x,H100,1,1,1,"1,234.5",north,,\n', "1,234.5"),
        (HEAD + "x,H100,many,1,1,2,north,,\n", "many"),
        (HEAD + "x,H100,1e308,1,1,2,north,,\n", "1e308"),
        (HEAD + "x,H100,1,1,1,,north,,\n", "no price"),
        (HEAD + "x,H100,1,1,1,2\n", "line 2"),
        (HEAD + ROWS[:-9], "line 8"),
        (HEAD + "x,H100,1,1,1,2,north,,1,more\n", "line 2"),
        (HEAD, "no price"),
    ],
)
def test_a_file_of_another_shape_or_with_an_impossible_price_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    with raising(BadCatalog, "vms.csv", fact):
        read_catalog(catalog(tmp_path, text), "acme", shipped().cards)


def test_a_catalog_that_a_spreadsheet_saved_is_read(tmp_path: Path) -> None:
    """With a byte order mark and line ends of two characters."""
    text = "\ufeff" + (HEAD + ROWS).replace("\n", "\r\n")
    found = read_catalog(catalog(tmp_path, text), "acme", shipped().cards)
    assert found == read_catalog(catalog(tmp_path), "acme", shipped().cards)


@pytest.mark.parametrize(
    "odd",
    [
        "[" * 100_000,
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 50)) + "prices: *a49",
        *(
            f"prices: [{{cloud: a, card: H100, gpus: {gpus}, instance: i, region: r, on_demand: 3}}]"
            for gpus in (0, -8)
        ),
        *(
            f"prices: [{{cloud: a, card: H100, gpus: 1, instance: i, region: r, on_demand: {price}}}]"
            for price in ("0", "-1", "1.0e+308", ".inf", ".nan")
        ),
    ],
    ids=lambda text: text[-20:],
)
def test_an_impossible_file_of_prices_is_refused(odd: str) -> None:
    with raising(BadConfig, "p.yaml"):
        parse(odd, "p.yaml")


def test_a_file_of_another_shape_is_refused_with_the_field() -> None:
    with raising(BadConfig, "p.yaml", "prices.0.on_demand"):
        parse("prices: [{cloud: a, card: H100, gpus: 1, instance: i, region: r, on_demand: cheap}]", "p.yaml")
    with raising(BadConfig, "p.yaml"):
        parse("a,b", "p.yaml")
    with raising(BadConfig, "p.yaml", "lines"):
        parse("lines: [1]", "p.yaml")


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    path = catalog(tmp_path)
    path.write_bytes(b"\xff\xfe" + HEAD.encode())
    with raising(BadCatalog, "vms.csv"):
        read_catalog(path, "acme", shipped().cards)
    with raising(BadConfig, "none.csv"):
        read_catalog(tmp_path / "none.csv", "acme", shipped().cards)


def test_the_command_writes_what_it_read_and_keeps_other_clouds(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    words = ["cloud", "prices", "--source", "commit 1234", "--date", "2026-01-02", "--to", "mine.yaml", "--json"]
    first = desk(*words, "--catalog", str(catalog(tmp_path))).json
    assert (first["clouds"], first["prices"]) == (["acme"], 2)
    desk(*words, "--catalog", str(catalog(tmp_path, cloud="other")))
    desk(*words, "--catalog", str(catalog(tmp_path, HEAD + ROWS.replace("23.60", "20.00"))))
    made = parse((tmp_path / "mine.yaml").read_text(), "mine.yaml")
    assert [(one.cloud, one.date) for one in made.catalogs] == [
        ("acme", datetime.date(2026, 1, 2)),
        ("other", datetime.date(2026, 1, 2)),
    ]
    assert {one.on_demand for one in made.of_cloud("acme").prices} == {2.95, 20.00} and len(made.prices) == 4
    assert "commit 1234" in made.catalogs[0].source and Prices.model_validate(made.model_dump()) == made


@pytest.mark.parametrize(
    "words",
    [
        ("--catalog", "vms.csv"),
        ("--catalog", "vms.csv", "--source", "c", "--date", "yesterday", "--to", "p.yaml"),
        ("--catalog", "vms.csv", "--source", "c", "--date", "2999-01-01", "--to", "p.yaml"),
        ("--to", "p.yaml"),
        ("--source", "c"),
        ("--date", "unknown"),
        ("--catalog", "vms.csv", "--catalog", "vms.csv", "--source", "c", "--date", "unknown", "--to", "p.yaml"),
    ],
)
def test_a_price_without_source_or_date_is_not_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "vms.csv").write_text(HEAD + ROWS)
    Desk(tmp_path)("cloud", "prices", *words, code=2).raised(UsageError)
    assert not (tmp_path / "p.yaml").exists()


def test_old_and_undated_prices_are_warned_of() -> None:
    day = datetime.date(2026, 6, 1)
    one = Catalog(cloud="acme", source="commit 1", date=day)
    assert one.stale(day + datetime.timedelta(STALE_DAYS)) == ""
    assert "acme" in one.stale(day + datetime.timedelta(STALE_DAYS + 1)) and "commit 1" in one.stale(datetime.date.max)
    assert "acme" in one.model_copy(update={"date": None}).stale(day)


def test_a_price_is_positive() -> None:
    with pytest.raises(ValueError, match="on_demand"):
        Price(cloud="a", card="H100", gpus=1, instance="x", region="y", on_demand=0.0)
