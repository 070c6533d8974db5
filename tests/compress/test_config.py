"""A codec is its configuration: text, call, pickle and equality."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from data import CODECS, CONFIGS

import compress
from compress.codec import Codec
from compress.method import Method

METHODS = {
    "feedback": "feedback(topk:ratio=0.02)", "powersgd": "powersgd:rank=4", "thc": "thc:width=6,seed=2",
    "dgc": "dgc(topk:ratio=0.02):momentum=0.5,warmup=9",
    "ef21": "ef21(topk:ratio=0.02)", "diana": "diana(qsgd):alpha=0.25",
    "sparcml": "sparcml(topk:ratio=0.02):warmup=9", "gtopk": "gtopk:ratio=0.02", "oktopk": "oktopk:ratio=0.02",
}  # fmt: skip


@pytest.mark.parametrize("text", METHODS.values())
def test_text_and_call_make_the_same_method(text):
    method = compress.get(text)
    assert str(method) == text
    assert compress.get(str(method)) == method
    kinds = [method, compress.get("topk"), compress.get("qsgd")]
    assert eval(repr(method), {type(kind).__name__: type(kind) for kind in kinds}) == method


@pytest.mark.parametrize("text", CONFIGS)
def test_text_call_and_pickle_make_the_same_codec(text):
    codec = CODECS[text]
    assert compress.get(str(codec)) == codec
    assert str(compress.get(str(codec))) == str(codec)
    assert eval(repr(codec), {type(codec).__name__: type(codec)}) == codec
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert hash(compress.get(text)) == hash(codec)
    with pytest.raises(AttributeError):
        codec.block = 3


def test_every_name_of_the_table_is_tried():
    methods = {name for name in compress.TABLE if issubclass(type(compress.get(METHODS.get(name, name))), Method)}
    assert set(compress.TABLE) == {text.partition(":")[0] for text in CONFIGS} | methods
    assert methods == set(METHODS)


def test_only_what_differs_from_the_default_is_written():
    assert str(compress.get("int4:block=64")) == "int4"
    assert str(compress.get("INT4", block=32)) == "int4:block=32"
    assert str(compress.get("terngrad")) == "terngrad"
    assert str(compress.get("int2:rounding=stochastic,seed=7")) == "terngrad:seed=7"


@pytest.mark.parametrize(
    "text, said",
    [
        ("in4", "unknown codec 'in4'; have float16, bfloat16, int8"),
        ("int4:width=3", "int4 has no parameter 'width'; it has block, rounding, norm, seed"),
        ("int4:block=many", "cannot read block='many' of int4; expected int"),
        ("int4:block=24", "block is a power of two from 8 to 8192, not 24"),
        ("int4:rounding=up", "unknown rounding 'up'; have nearest, stochastic, correlated"),
        ("int4:seed=-1", "seed is a whole number"),
        ("fp8:format=e3m4", "unknown format 'e3m4'; have e4m3, e5m2"),
        ("int4(int8)", "int4 takes no codec in parentheses"),
        ("feedback", "feedback needs a codec: feedback(int8)"),
        ("feedback(topk:ratio=0)", "ratio is a number above 0, up to 1, not 0.0"),
        ("randomk:unbiased=maybe", "cannot read unbiased='maybe' of randomk; expected bool"),
        ("threshold:least=nan", "least is a finite number above 0, not nan"),
        ("feedback(int8):warmup=9", "warmup needs a codec with a ratio, such as topk, not int8"),
        ("int4:block=32,block=64", "int4 is given 'block' twice"),
        ("feedback(int8):codec=int4", "feedback is given 'codec' twice"),
        ("int4:", None),
        ("int4(", "cannot read"),
    ],
)
def test_errors_name_what_was_given_and_what_there_is(text, said):
    if said is None:
        assert compress.get(text) == compress.get(text.strip(":"))
    else:
        with pytest.raises(ValueError) as error:
            compress.get(text)
        assert said in str(error.value)


def test_numbers_of_numpy_are_as_good_as_those_of_python():
    made = compress.get("int4", block=np.int64(32), seed=np.uint8(3))
    assert made == compress.get("int4:block=32,seed=3") and str(made) == "int4:block=32,seed=3"
    assert str(compress.get("topk", ratio=np.float64(0.05))) == "topk:ratio=0.05"
    assert compress.get("randomk", unbiased=np.False_) == compress.get("randomk:unbiased=False")


def test_no_method_inside_another():
    for text in ("feedback(thc)", "feedback(feedback(int8))", "dgc(powersgd)", "ef21(thc)", "sparcml(gtopk)"):
        with pytest.raises(TypeError, match=r"is made of a codec, such as get\('int8'\), not of \w+\("):
            compress.get(text)
    kinds = {type(compress.get(f"{name}(topk)")) for name in ("feedback", "dgc", "ef21", "sparcml")}
    for kind in kinds:
        with pytest.raises(TypeError, match="not of 'int8'"):
            kind("int8")
    assert compress.get("feedback", codec="int8") == compress.get("feedback(int8)")


@dataclass(frozen=True)
class Linear(Codec):
    """Of the name of one in the package, and not that."""

    width: int = 9


def test_text_of_a_codec_from_outside_is_its_repr():
    assert str(Linear(3)) == "Linear(width=3)"
    assert str(compress.get("feedback", codec=Linear())) == "feedback(Linear(width=9))"


SHARES = [
    "topk", "sampled", "blocktopk", "randomk", "gtopk", "oktopk", "feedback(topk)", "dgc(sampled)", "sparcml(topk)",
]  # fmt: skip


@pytest.mark.parametrize("text", SHARES)
@pytest.mark.parametrize("ratio", ["0", "1.5", "-0.1", "nan"])
def test_a_share_is_above_0_and_up_to_1(text, ratio):
    with pytest.raises(ValueError, match=r"ratio is a number above 0, up to 1, not "):
        compress.get(text.replace(")", f":ratio={ratio})") if ")" in text else f"{text}:ratio={ratio}")


@pytest.mark.parametrize("name", ["topk", "sampled", "blocktopk", "randomk"])
def test_all_are_sent_if_that_is_the_share(name):
    codec = compress.get(f"{name}:ratio=1")
    for n in (0, 1, 100):
        x = np.arange(n, dtype=np.float32) - 7
        assert np.array_equal(codec.decode(codec.encode(x), np.full_like(x, 5)), x)


def test_what_cannot_be_encoded_is_refused():
    codec = compress.get("int8")
    with pytest.raises(TypeError, match="cannot encode dtype int32; have float16, bfloat16, float32, float64"):
        codec.encode(np.arange(3, dtype=np.int32))
    with pytest.raises(TypeError, match="cannot decode to dtype int64"):
        codec.decode(np.zeros(5, np.uint8), np.arange(3))
    with pytest.raises(ValueError, match="message of 3 values has 10 bytes, not 5"):
        codec.decode(np.zeros(5, np.uint8), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="a message takes 10 contiguous, writable bytes of uint8, not 9 of uint8"):
        codec.encode(np.zeros(3, np.float32), out=np.zeros(9, np.uint8))
    with pytest.raises(ValueError, match="read-only or not contiguous"):
        codec.decode(np.zeros(10, np.uint8), np.zeros(6, np.float32)[::2])
    with pytest.raises(TypeError, match="are arrays, not bytes"):
        codec.decode(bytes(10), np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="are arrays, not list"):
        codec.decode(np.zeros(10, np.uint8), [0.0, 0.0, 0.0])
    with pytest.raises(TypeError, match="an array of uint8, not to bytearray"):
        codec.encode(np.zeros(3, np.float32), out=bytearray(10))
