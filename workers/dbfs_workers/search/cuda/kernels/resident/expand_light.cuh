// Light level: a top-down level of few vertices with few neighbours each, as meshes and road networks have by the
// thousand. Latency decides there, so this path has the fewest instructions and one barrier.
//
// A group of lanes, as many as the degrees need (at most 8), takes a vertex: lane j its edges j, j + group, ... There
// is no prefix sum and no search. A discovery, here or by a peer, is queued unlabelled, and the level that takes it
// labels it unless an earlier one did. Two bitmaps keep that exact: `visited` has the vertices that this rank has
// queued or sent; `known` has the labelled ones, and is claimed when a vertex is taken. With one bitmap a discovery of
// this level (distance d + 1) could claim a vertex that still lies in the inbox with distance d. A block stages its
// discoveries by owner and reserves room once for each owner. In one beat a thread inspects one edge. Reads 4 bytes and
// 16 of offsets a vertex, 4 bytes and a bit an edge.
//
// In the roles kSingle and kLeader this rank discovers every vertex, so `visited` alone is exact, and ids are internal
// ids. In the role kPeer the ids in queues and inboxes are rows.
#pragma once
#include "search/cuda/kernels/resident/leader.cuh"

namespace dbfs {

// Ids that the stage holds for each owner.
template <Role kRole>
__device__ __forceinline__ u32 stage_region(const Params& a) {
  return kRole == Role::kPeer ? kStage / a.ranks : kStage;
}

// A queue of vertices, and their parents.
struct Queue {
  u32* ids;
  u32* parents;
};

template <Role kRole>
__device__ __forceinline__ Queue light_queue(const Params& a, u32 queue) {
  if (kRole != Role::kLeader) return {a.queues[queue], a.queue_parents[queue]};
  const Peer& leader = a.peers[kLeader];
  return {leader.leader_queue + leader_queue_offset(a, queue), leader.leader_parents + leader_queue_offset(a, queue)};
}

// The owner of a vertex, and its adjacency lists.
struct Place {
  const Csr& csr;
  u32 owner, row;
};

template <Role kRole>
__device__ __forceinline__ Place place_of(const Params& a, u32 id) {
  if (kRole != Role::kLeader) return {a.out, a.rank, id};
  const u32 owner = id / a.n_local;
  return {a.peers[owner].out, owner, id - owner * a.n_local};
}

template <Role kRole>
__device__ __forceinline__ void label_light(const Params& a, u32 id, u32 distance, u32 parent) {
  if (kRole != Role::kLeader) {
    label(a, id, distance, parent);
    return;
  }
  const Place place = place_of<kRole>(a, id);
  a.peers[place.owner].distances[place.row] = (i32)distance;
  if (kPredecessors) a.peers[place.owner].parents[id] = parent;
}

// A vertex that a group of lanes took.
struct Taken {
  u32 id;  // kNoVertex: none was left
  u32 parent;
  bool received;  // it came from another rank
};

// Take the vertex at position i: first the queue, then the inbox of each rank. All lanes of a group take the same one,
// and the lane with `first` also reads its parent.
template <Role kRole>
__device__ __forceinline__ Taken take(const Params& a, const Block& b, u32 i, u32 items, bool first) {
  const Run& run = b.run;
  Taken taken = {kNoVertex, kNoVertex, false};
  if (i < run.small) {
    const Queue queue = light_queue<kRole>(a, run.queue);
    // The first frontier of the leader is the sources, which are labelled.
    const bool given = kRole == Role::kLeader && !run.frontier.pending;
    taken.id = given ? source_at(a, i) : queue.ids[i];
    if (kPredecessors && run.frontier.pending && first) taken.parent = queue.parents[i];
  } else if (kRole == Role::kPeer && i < items) {
    i -= run.small;
    u32 rank = 0;
    for (; rank < a.ranks; ++rank) {
      const u32 count = rank == a.rank ? 0 : (u32)b.values[rank * kFlagWords + kWordSent];
      if (i < count) break;
      i -= count;
    }
    const u64 at = inbox_offset(a, run.level & 1, rank) + i;
    taken.id = load_shared_by_gang(&a.peers[a.rank].inbox[at]);
    if (kPredecessors && first) taken.parent = load_shared_by_gang(&a.peers[a.rank].inbox_parents[at]);
    taken.received = true;
  }
  return taken;
}

// Claim a pending vertex for its label. False if it has one, because a shorter way to it was found. A rank that
// discovers every vertex itself finds each only once.
template <Role kRole>
__device__ __forceinline__ bool first_way(const Params& a, u32 id) {
  if (kRole == Role::kPeer) return claim(a.known, id);
  if (kRole == Role::kSingle) set_bit(a.known, id);
  return true;
}

// Label a pending vertex; one lane of its group calls it. False if a shorter way to the vertex was found.
template <Role kRole>
__device__ __forceinline__ bool settle(const Params& a, const Block& b, const Taken& taken) {
  if (!b.run.frontier.pending) return true;
  if (!first_way<kRole>(a, taken.id)) return false;
  if (taken.received) mark_visited(a, taken.id);
  label_light<kRole>(a, taken.id, b.run.level, taken.parent);
  return true;
}

// A warp stages the vertices that its lanes won, each in its owner's part of the stage. All lanes call it.
template <Role kRole>
__device__ __forceinline__ void stage_by_owner(const Params& a, Block& b, bool won, u32 id, u32 parent) {
  const u32 owner = kRole == Role::kPeer && won ? id / a.n_local : 0;
  const u32 winners = __ballot_sync(kAll, won);
  if (!winners) return;
  u32 same = winners;
  if (kRole == Role::kPeer) same = won ? __match_any_sync(winners, owner) : 0;
  const u32 first = __ffs(same) - 1;
  u32 at = 0;
  if (won && lane_id() == first) at = atomicAdd(&b.staged_for[owner], (u32)__popc(same));
  at = __shfl_sync(kAll, at, first) + __popc(same & lanes_below()) + owner * stage_region<kRole>(a);
  if (!won) return;
  b.stage.ids[at] = kRole == Role::kPeer ? id - owner * a.n_local : id;
  if (kPredecessors) b.stage.parents[at] = parent;
}

// Publish the stage: queue this rank's vertices, write the others to their owners' inboxes. With `last`, at the end of
// the level, the block may keep some. All threads call it; the caller passes a block barrier before it stages again.
template <Role kRole>
__device__ __forceinline__ void publish_by_owner(const Params& a, Block& b, const Output& to, bool last) {
  const u32 ranks = kRole == Role::kPeer ? a.ranks : 1;
  __syncthreads();
  if (threadIdx.x < ranks) {
    const u32 owner = threadIdx.x, count = b.staged_for[owner];
    const bool mine = kRole != Role::kPeer || owner == a.rank;
    const u32 room = kGang && a.max_degree <= kKeepDegree ? min(kKeep, (kThreads - kLanes) >> (a.light - 1)) : 0;
    // A block with too many keeps half of its room, so that few levels have a queue to read.
    const u32 kept = mine && last ? (count <= room ? count : room / 2) : 0;
    const u32 leave = count - kept;
    b.base[owner] = leave ? atomicAdd(&to.slot->lines[mine ? (u32)kSmall : kSent + owner].value, (u64)leave) : 0;
    b.staged_counts[owner] = count;
    b.staged_for[owner] = 0;
    if (mine) {
      if (last) b.kept = kept;
      if (kRole == Role::kPeer) {
        b.totals[kDiscovered] += count;
      } else {
        b.queued += leave;
      }
    }
  }
  __syncthreads();
  const u32 owner = kRole == Role::kPeer ? warp_in_block() % ranks : 0;
  // Warps that serve this owner.
  const u32 share = kRole == Role::kPeer ? (kWarps - owner + ranks - 1) / ranks : kWarps;
  const bool mine = kRole != Role::kPeer || owner == a.rank;
  const u32 count = b.staged_counts[owner], region = owner * stage_region<kRole>(a), kept = mine && last ? b.kept : 0;
  const u64 base = b.base[owner] + (mine ? 0 : inbox_offset(a, to.parity, a.rank));
  const Peer& peer = a.peers[owner];
  const Queue queue = mine ? light_queue<kRole>(a, to.queue) : Queue{peer.inbox, peer.inbox_parents};
  for (u32 i = (kRole == Role::kPeer ? warp_in_block() / ranks : warp_in_block()) * kLanes + lane_id(); i < count;
       i += share * kLanes) {
    const u32 id = b.stage.ids[region + i];
    if (i < kept) {
      b.keep_ids[i] = id;
      if (kPredecessors) b.keep_parents[i] = b.stage.parents[region + i];
      continue;
    }
    if (mine && kRole != Role::kLeader) prefetch(&a.out.offsets[id]);
    queue.ids[base + i - kept] = id;
    if (kPredecessors) queue.parents[base + i - kept] = b.stage.parents[region + i];
  }
}

// Several ranks: fetch the neighbours of the kept vertices. All warps except the first call it, while the first waits at the barrier.
template <Role kRole>
__device__ __forceinline__ void fetch_kept(const Params& a, Block& b) {
  if (!b.kept) return;
  const u32 group_log = a.light - 1, i = (threadIdx.x - kLanes) >> group_log, j = lane_id() & ((1u << group_log) - 1);
  u32 id = kNoVertex;
  if (i < b.kept) {
    const Place place = place_of<kRole>(a, b.keep_ids[i]);
    const Degree degree = degree_of(place.csr, place.row);
    if (j < degree.count) id = __ldg(&place.csr.columns[degree.begin + j]);
  }
  b.keep_edges[threadIdx.x] = id;
}

// Claim, label and expand the kept vertices. The first warp has none. A kept vertex may have been reached sooner by way
// of another rank; its neighbours were claimed at that time, and are not claimed again.
template <Role kRole>
__device__ __forceinline__ void expand_kept(const Params& a, Block& b, u32 kept, u32& expanded) {
  const u32 group_log = a.light - 1, i = (threadIdx.x - kLanes) >> group_log, j = lane_id() & ((1u << group_log) - 1);
  if (threadIdx.x < kLanes || ((threadIdx.x - kLanes - lane_id()) >> group_log) >= kept) return;
  const u32 id = i < kept ? b.keep_edges[threadIdx.x] : kNoVertex;
  const u32 from = i < kept ? b.keep_ids[i] : 0;
  bool won = id != kNoVertex;
  if (won) won = claim(a.peers[a.rank].visited, id);
  if (i < kept && j == 0) {
    const bool first = first_way<kRole>(a, from);
    if (first) label_light<kRole>(a, from, b.run.level, kPredecessors ? b.keep_parents[i] : kNoVertex);
    expanded += first;
  }
  stage_by_owner<kRole>(a, b, won, id, (kRole == Role::kPeer ? a.rank * a.n_local : 0) + from);
}

// One light level: first the kept vertices, then the queue and the inboxes.
template <Role kRole>
__device__ __forceinline__ void expand_light(const Params& a, Block& b, const Output& to) {
  const u32 lane = lane_id(), first_id = kRole == Role::kPeer ? a.rank * a.n_local : 0;
  const u32 group_log = a.light - 1, group = 1u << group_log, per_warp = kLanes >> group_log;
  const u32 j = lane & (group - 1);
  u32* visited = a.peers[kRole == Role::kSingle ? 0 : a.rank].visited;
  const bool looks_first = b.run.frontier.vertices * a.max_degree > kTinyEdges;
  u32 items = b.run.small;
  if (kRole == Role::kPeer && b.run.frontier.pending) {
    for (u32 rank = 0; rank < a.ranks; ++rank) {
      items += rank == a.rank ? 0 : (u32)b.values[rank * kFlagWords + kWordSent];
    }
  }
  const u32 most_beats = stage_region<kRole>(a) / kThreads, kept = b.kept;
  u32 expanded = 0, beats = 0;
  if (kGang && kept) {
    expand_kept<kRole>(a, b, kept, expanded);
    beats = 1;
  }
  for (u32 first = blockIdx.x * per_warp; first < items; first += warps_in_grid() * per_warp) {
    const u32 warp_first = first + warp_in_block() * gridDim.x * per_warp;
    // A warp without vertices does no work, and the multiprocessor serves the others.
    const bool works = warp_first < items;
    u32 from = kNoVertex, ahead = kNoVertex;
    const u32* columns = nullptr;
    Degree degree = {0, 0};
    if (works) {
      const Taken taken = take<kRole>(a, b, warp_first + (lane >> group_log), items, j == 0);
      from = taken.id;
      if (from != kNoVertex) {
        const Place place = place_of<kRole>(a, from);
        degree = degree_of(place.csr, place.row);
        columns = place.csr.columns + degree.begin + j;
      }
      // Fetched before the claim of the vertex is answered, because that answer takes as long.
      if (j < degree.count) ahead = __ldg(columns);
      bool mine = from != kNoVertex;
      if (mine && j == 0) mine = settle<kRole>(a, b, taken);
      if (kRole == Role::kPeer) mine = __shfl_sync(kAll, mine, lane & ~(group - 1));
      if (!mine) degree.count = 0;
      expanded += mine && j == 0;
    }
    for (u32 at = 0; at < a.max_degree; at += group) {
      if (beats == most_beats) {
        publish_by_owner<kRole>(a, b, to, false);
        __syncthreads();
        beats = 0;
      }
      if (works) {
        bool won = at + j < degree.count;
        const u32 id = ahead;
        if (at + group + j < degree.count) ahead = __ldg(columns + at + group);
        if (won && looks_first) won = !has_bit(visited, id);
        if (won) {
          if (kRole == Role::kSingle) prefetch(&a.out.offsets[id]);
          won = claim(visited, id);
        }
        stage_by_owner<kRole>(a, b, won, id, first_id + from);
      }
      ++beats;
    }
  }
  // A rank without peers has the frontier's length already, and a total costs its barrier a trip to L2.
  if (kRole == Role::kPeer && __any_sync(kAll, expanded)) add_small_total(b, kExpanded, expanded);
  if (beats) publish_by_owner<kRole>(a, b, to, true);  // without beats nothing was kept or found
}

}  // namespace dbfs
