// The vertices that a top-down search finds, in a list for each owner.
#pragma once
#include "search/cuda/kernels/phases/reserve.cuh"

namespace dbfs {

// Claim the id of each lane that is `on`, and reserve a place in the list of its owner, who has `n_local` ids. Call
// found(owner, place, local) for each id claimed. All lanes of a warp call it together. `ends` has a sum for each owner.
template <typename Found>
__device__ __forceinline__ void list_unseen(bool on, u32 id, u32 n_local, u32* visited, Line* ends, Found found) {
  const bool won = on && claim_unseen(visited, id);
  if (!__any_sync(kAll, won)) return;
  const u32 owner = won ? id / n_local : 0xffffffffu;
  const u32 same = __match_any_sync(kAll, owner);
  if (!won) return;
  const u64 at = reserve(&ends[owner].value, same);
  found(owner, at, id - owner * n_local);
}

}  // namespace dbfs
