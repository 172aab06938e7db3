"""The limit of open files."""

import resource

import pytest

from rmq_ha.ops.app.descriptors import FEW, allow_descriptors, complaint


def test_the_soft_limit_becomes_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 524288))
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: asked.append(limits))
    assert allow_descriptors() == 524288
    assert asked == [(524288, 524288)]


def test_a_system_that_refuses_keeps_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(what: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda what: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert allow_descriptors() == 256


def test_few_are_complained_about() -> None:
    assert "only 1024 open files" in str(complaint(1024))
    assert complaint(FEW) is None
    assert complaint(resource.RLIM_INFINITY) is None
