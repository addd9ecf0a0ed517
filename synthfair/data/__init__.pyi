from .batches import DaskBatches, from_files, in_memory
from .partition import ClientTable, partition_by

__all__ = ["ClientTable", "DaskBatches", "from_files", "in_memory", "partition_by"]
