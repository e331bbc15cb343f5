"""The CUDA backend of a rank: kernels, their compilation, and the code that launches them.

In: a rank's partition in GPU memory, and the options of a run. Out: labels on the GPU, and records of the levels.
``layout.py`` declares what kernels and host share; ``kernels/`` has the CUDA sources.
"""
