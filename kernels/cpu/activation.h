// The activations of feed-forward layers.
#pragma once
#include "simd.h"

// gate / (1 + e^-gate). An e^87 under the fraction is as good as infinity.
static inline Lanes silu(Lanes gate) { return gate / (broadcast(1.0f) + exponential(broadcast(0.0f) - gate)); }

// The approximation by tanh of Hendrycks and Gimpel 2016, arXiv:1606.08415.
static inline Lanes gelu_tanh(Lanes gate) {
    const Lanes cubed = gate * gate * gate;
    const Lanes inner = broadcast(0.79788456f) * fmadd(broadcast(0.044715f), cubed, gate);
    return broadcast(0.5f) * gate * (broadcast(1.0f) + hyperbolic_tangent(inner));
}
