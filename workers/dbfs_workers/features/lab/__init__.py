"""The laboratory: the strategies of the papers beside the engines, on the same graphs, labels and validator.

In: a graph on one rank, and a strategy's name with its options (``strategies``). Out: labels, counts a level and
counters (``result``).

Problem, enactor, operators and tuning are apart: ``problem`` has the arrays, ``enactor`` and a module a family
(``merrill``, ``status``, ``queues``) the levels, ``cuda/kernels/lab/*.cuh`` the operators, ``tuning`` the sizes. A
strategy is one short .cu file that composes operators, and one function that launches its kernels. The enactors launch
through ``device.Device``, which a GPU implements; so do the tests, on a CPU.
"""
