// Groups of kGroupRows neighbouring rows. Where rows are ordered by degree, the rows of most groups have one degree, so
// sums of degrees need not read row offsets.
#pragma once
#include "generated/layout.cuh"

namespace dbfs {

// In place of a group's common degree: its rows have several, or one of more than 32 bits.
constexpr u32 kMixed = 0xffffffffu;

}  // namespace dbfs
