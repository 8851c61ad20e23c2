// Attention over the paged cache: its arguments and the units it works in.
#pragma once
#include "cache.h"
#include "worker.h"

struct AttentionRule {
    float scale;    // of scores
    float softcap;  // bounds them; 0: does not
    int window;     // tokens a query sees, itself included; 0: all

    int first_key(int position) const { return window ? std::max(0, position - window + 1) : 0; }
};

struct AttentionArguments {
    const bf16* qkv;  // [T, qkv_size], rotated
    const Cache* cache;
    bf16* out;        // [T, num_heads * head_dim]
    float* partials;  // room for shared rows, see attention.cpp
    int num_heads;
    const AttentionRule* rule;
};

static constexpr int TILE = 16;    // queries that are computed together
static constexpr int RANGE = 128;  // keys that are weighed together; ranges begin at multiples of it
static constexpr int RANGE_BLOCKS = RANGE / BLOCK;
