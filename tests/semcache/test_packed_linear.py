import torch

from semcache.packed_linear import PackedLinear, pack_linears


def test_packed_weights_give_the_same_product_bit_for_bit() -> None:
    torch.manual_seed(0)
    for rows in (1, 12, 300):
        linear = torch.nn.Linear(384, 1536).to(torch.bfloat16)
        x = torch.randn(2, rows, 384, dtype=torch.bfloat16)
        with torch.inference_mode():
            assert torch.equal(PackedLinear(linear)(x), linear(x))


def test_only_bfloat16_layers_are_packed() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8).to(torch.bfloat16), torch.nn.ReLU())
    assert pack_linears(model) == 1
    assert isinstance(model[0], torch.nn.Linear)
    assert isinstance(model[1], PackedLinear)
