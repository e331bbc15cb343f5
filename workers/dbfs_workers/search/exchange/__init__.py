"""Exchanges: how the ranks of a gang pass bins, bitmap slices and counts to each other at the barrier of each level.

In: a rank's bins and slice of a level, and its counts (``protocol`` defines the calls; the level loop makes them).
Out: the bins and slices of the peers and the sums of all counts, or the typed error that ended the run on all ranks.

Four classes implement ``protocol.Exchange``. In a gang on GPUs that can map each other's memory, none of them runs:
the resident kernel exchanges by itself (``dbfs_workers.search.cuda``).

| module | class | ranks that it connects |
| --- | --- | --- |
| ``shared_memory`` | ``SharedMemoryExchange`` | on one host; ``segment`` lays it out, ``kernels.barrier`` wait in it |
| ``across_hosts`` | ``EnvoyExchange`` | the lowest ranks of all hosts, by TCP; the ranks of a host share memory.
  ``hosts`` finds the hosts of the ranks; ``link`` and ``stream`` carry the frames |
| ``nccl`` | ``NcclExchange`` | on GPUs on any hosts, a GPU each, from GPU memory to GPU memory; ``transport`` carries
  the ends of runs over Dask's connections |
| ``staged`` | ``StagedExchange`` | on GPUs, through host memory and one of the first two |
"""
