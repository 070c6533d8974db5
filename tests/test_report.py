"""The page of pictures: whole, self-contained, and true to the rows."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from PIL import Image
from test_driver import row, written

from bench.__main__ import main
from bench.looks import emphasized, length
from bench.relations import foretold

SPACE = "{http://www.w3.org/2000/svg}"


def rows(**more):
    for nbytes, scale in ((64, 1), (65536, 9), (1 << 20, 99)):
        for name, factor in (("ring", 2.0), ("direct", 1.0), ("native", 1.5)):
            times = [factor * scale * x * 1e-6 for x in (1, 1.1, 1.2)]
            yield row(nbytes, name, times, predicted=None if name == "native" else scale * 1e-6, **more)
        yield row(nbytes, "ring", [scale * 1e-6] * 3, codec="int8", wire=nbytes // 4, error=1e-4, **more)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of two files, one measured on fewer ranks."""
    tmp_path = tmp_path_factory.mktemp("page")
    files = [
        written(tmp_path / "4.jsonl", rows(marks=["unpinned"]), variables={"A": "<script>alert(1)</script>"}),
        written(tmp_path / "2.jsonl", rows(ranks=2)),
    ]
    out = tmp_path / "report.html"
    assert main(["report", *map(str, files), "--out", str(out)]) == 0
    return out.read_text()


def words(svg):
    return {"".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SPACE}text")}


def test_the_page_holds_all_pictures_and_asks_for_nothing(page):
    titles = re.findall(r"<figcaption><b>(.*?)</b>", page)
    each = ["Time", "Bus bandwidth", "Speed-up", "Predicted against measured", "Spikes", "Stragglers",
            "What codecs cost and save, 1 MiB"]  # fmt: skip
    where = "An MPI, float32 sum, out of place, warm caches"
    heads = [f"Fastest by size and number of ranks: {where}", f"Scaling, 64 B: {where}", f"Scaling, 1 MiB: {where}"]
    assert titles == [*heads, *each, *each]
    svgs = re.findall(r"<svg.*?</svg>", page, re.S)
    assert len(svgs) == len(titles)
    assert {"direct", "ring", "native", "64 KiB", "time of one all-reduce"} <= words(svgs[3])
    assert "<script" not in page and "&lt;script&gt;" in page and "unpinned" in page
    names = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', page)
    assert not names and "@import" not in page

    class Balanced(HTMLParser):
        depth = 0

        def handle_starttag(self, tag, attributes):
            self.depth += tag == "figure"

        def handle_endtag(self, tag):
            self.depth -= tag == "figure"

    parser = Balanced()
    parser.feed(page)
    assert parser.depth == 0


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
#: Tells on its console if the page would have to be moved sideways to be seen.
WIDER = "<script>if (document.body.scrollWidth > innerWidth) console.error('wider than', innerWidth)</script></body>"


@pytest.mark.skipif(not BROWSER, reason="no Chromium to open the page in")
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_has_nothing_to_object(page, tmp_path, width):
    """500 is the least that a window of Chromium has; pictures and tables that are wider move by themselves."""
    path = tmp_path / "page.html"
    path.write_text(page.replace("<details>", "<details open>").replace("</body>", WIDER))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--enable-logging=stderr"]
    command = [BROWSER, *options, f"--user-data-dir={tmp_path}/profile", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.count("</svg>") == page.count("</svg>")
    assert "CONSOLE" not in done.stderr


def test_the_map_names_the_fastest_and_its_ratio(page):
    said = words(re.findall(r"<svg.*?</svg>", page, re.S)[0])
    assert {"4", "2", "64 B", "1 MiB"} <= said and "ring" not in said
    assert sum("direct" in text for text in said) >= 1 and any("0.67" in text for text in said)


def test_wrong_elements_head_the_page(tmp_path):
    out = tmp_path / "r.html"
    file, folder = written(tmp_path / "a", rows(wrong=3)), tmp_path / "pictures"
    assert main(["report", str(file), "--out", str(out), "--pictures", str(folder)]) == 0
    assert len([ElementTree.parse(path) for path in folder.glob("*.svg")]) == 8
    sizes = [Image.open(path).size for path in folder.glob("*.png")]
    assert len(sizes) == 8 and all(width > 1000 and height > 300 for width, height in sizes)
    assert "36 wrong elements" in out.read_text()
    assert main(["report", str(written(tmp_path / "b", [])), "--out", str(out)]) == 2


def test_stages_of_codecs_are_a_picture(tmp_path, capsys):
    known = dict(record="codec", ranks=4, nbytes=1 << 20, plain=2e-3, algorithm="direct", saved=3.9, wrong=0)
    times = dict(seconds=1e-3, encode=2e-4, wire=6e-4, decode=3e-4)
    records = [known | times | {"codec": "int8"}, known | dict.fromkeys(times) | {"codec": "sparcml", "seconds": 2e-3}]
    file, out = written(tmp_path / "a", []), tmp_path / "r.html"
    with file.open("a") as end:
        end.writelines(json.dumps(each) + "\n" for each in records)
    assert main(["report", str(file), "--out", str(out)]) == 0 and capsys.readouterr().out == f"{out}\n"
    (svg,) = re.findall(r"<svg.*?</svg>", out.read_text(), re.S)
    assert {"encode", "wire", "decode", "measured", "no codec", "int8, direct", "sparcml, direct"} <= words(svg)
    assert "Stages of codecs, 1 MiB on 4 ranks" in out.read_text()
    with file.open("a") as end:
        end.write(json.dumps(known) + "\n")
    assert main(["report", str(file), "--out", str(out)]) == 2


def test_what_is_emphasized_and_how_sizes_are_said():
    exact = [each for each in rows() if not each.codec]
    looks = emphasized(exact)
    assert list(looks)[-2:] == ["direct", "ring"] and looks["direct"]["color"] != looks["ring"]["color"]
    assert [length(n) for n in (1, 1023, 1 << 10, 25 << 20, 1 << 31)] == ["1 B", "1023 B", "1 KiB", "25 MiB", "2 GiB"]


def test_predictions_are_judged_from_64_kib_up():
    assert foretold(rows()) == "predicted within 25%: 2 of 4 cells from 64 KiB up"
    assert foretold([row(65536)]) == ""
    vague, through = row(65536, seconds=[1e-6, 2e-6, 4e-6], predicted=2e-6), row(65536, "node")
    assert foretold([vague, through]) == (
        "predicted within 25%: 1 of 1 cells from 64 KiB up, of which 1 are not known so well themselves; "
        "what goes through shared memory is not predicted: node"
    )
