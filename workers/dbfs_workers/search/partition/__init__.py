"""A graph and its labels on the ranks: which rank has which vertex, and the arrays that each rank keeps.

In: edges in pieces (``building``, ``pieces``, with the order by degree of ``ordering``). Out: a rank's edges
(``partition``), its working memory (``scratch``) and its labels (``labels``), all placed by the ``stripe``.
"""
