"""The Spark source and sink: a checkpoint that holds leader epochs and topic ids, so that no loss goes unnoticed."""
