"""Custom operators that `torch.func` can transform: `grad`, `jacrev`, `vmap`, and `jvp` of bilinear ones.

Operators of `torch.library` are what `torch.compile` wants, but `torch.func.grad` cannot differentiate them and
`torch.vmap` runs them in a loop. Inside a transform, an `Operator` therefore runs as an `autograd.Function`, whose rule
for `vmap` folds the mapped dimension into the batch.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..utils.errors import InputError


def transformed() -> bool:
    """Whether the caller runs inside a transform of `torch.func` or inside forward-mode differentiation."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


class Operator:
    """A custom operator whose first arguments and whose results are tensors with a batch dimension.

    Args:
        operator: the operator of `torch.library`, with its shapes registered.
        batched: number of these first arguments.
        save: `setup_context` of the backward pass.
        backward: the backward pass, which calls operators of this class; `None` if there is none.
        bilinear: whether it is linear in each of its first two tensors, which gives the rule of `jvp`.
    """

    def __init__(
        self,
        operator: Any,
        *,
        batched: int,
        save: Callable[..., None] | None = None,
        backward: Callable[..., Any] | None = None,
        bilinear: bool = False,
    ) -> None:
        self.operator, self.batched = operator, batched
        if save is not None and backward is not None:
            operator.register_autograd(backward, setup_context=save)
        self.function = _function_of(self, save, backward, bilinear)

    def __call__(self, *inputs: Any) -> Any:
        """The operator's results, differentiable and transformable."""
        if transformed():
            return self.function.apply(*inputs)
        return self.operator._init_fn(*inputs) if _needs_no_dispatch(inputs) else self.operator(*inputs)

    def fold(self, count: int, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        """The rule of `vmap`: results whose first dimension is the mapped one, of `count` entries."""
        tensors = [
            x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(inputs[: self.batched], in_dims, strict=False)
        ]
        batch = tensors[0].shape[1]
        found = self(*(x.flatten(0, 1) for x in tensors), *inputs[self.batched :])
        if isinstance(found, Tensor):
            return found.unflatten(0, (count, batch))
        # A result that was not asked for is empty, of shape (0,).
        return tuple(x.unflatten(0, (count, batch)) if x.dim() > 1 else x.expand(count, 0) for x in found)


def _needs_no_dispatch(inputs: tuple[Any, ...]) -> bool:
    """Whether the function behind a custom operator may be called directly.

    The first call of a custom operator imports torch.compile, which takes 0.8 s. Without gradients, and before anything
    else has imported it, neither autograd nor a compiler would learn of the call.
    """
    if torch.is_grad_enabled() or "torch._dynamo" in sys.modules:
        return False
    return all(type(x) in (Tensor, torch.nn.Parameter) for x in inputs if isinstance(x, Tensor))


def _function_of(
    operator: Operator, save: Callable[..., None] | None, rule: Callable[..., Any] | None, bilinear: bool
) -> Any:
    """The `autograd.Function` of an operator."""
    name = operator.operator._qualname

    class Transformable(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: Any) -> Any:
            return operator.operator(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            if save is not None:
                save(ctx, inputs, output)
            if bilinear:
                ctx.save_for_forward(*inputs[:2])
                ctx.rest = inputs[2:]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if rule is None:
                raise InputError(f"{name} cannot be differentiated: its operator is differentiable once")
            return rule(ctx, *gradients)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            if not bilinear:
                raise InputError(f"{name} has no forward-mode derivative: use torch.func.grad, vjp or jacrev")
            first, second = ctx.saved_tensors
            parts = []
            if tangents[0] is not None:
                parts.append(operator(tangents[0], second, *ctx.rest))
            if tangents[1] is not None:
                parts.append(operator(first, tangents[1], *ctx.rest))
            return sum(parts[1:], parts[0])

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
            found = operator.fold(info.batch_size, in_dims, *inputs)
            return found, 0 if isinstance(found, Tensor) else (0,) * len(found)

    return Transformable
