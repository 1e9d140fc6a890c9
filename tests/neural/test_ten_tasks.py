"""The task of docs/ten-tasks.md that needs torch, typed after the ones that it needs."""

from tests.fixtures.ten_tasks import TASKS, Typed


def test_a_newcomer_compiles_a_torch_module(type_in_order: Typed) -> None:
    type_in_order(TASKS["Install"])
    assert "torch.Size([1, 10])" in type_in_order(TASKS["Call it from torch"])
