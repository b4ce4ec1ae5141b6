"""Test aids that are part of the product: the core on a bench, the whole cluster in one thread.

``bench`` drives one scheduler core by hand, ``describe`` writes messages as people read them, and
``simulation`` runs a cluster of simulated processes from one seed
(``python -m scaler_cluster.testing SEED``).
"""
