"""The names of other projects' datasets, so that a program changes one import.

``forebay_torch.compat.aistore`` for ``aistore.pytorch``, ``.dataflux`` for ``dataflux_pytorch``,
``.s3`` for ``s3torchconnector``. What they take beyond the originals (``on_error``, ``shuffle``,
``state_dict()``) is that of the classes of ``forebay_torch`` that they are.
"""
