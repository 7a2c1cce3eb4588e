"""The names of other projects' datasets, so that a program changes one import.

``forebay_torch.compat.aistore`` for ``aistore.pytorch``, ``.dataflux`` for ``dataflux_pytorch``,
``.s3`` for ``s3torchconnector``. They are classes of ``forebay_torch``, and take their further
arguments (``on_error``, ``shuffle``) and methods (``state_dict()``).
"""
