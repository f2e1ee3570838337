"""How a workload is measured: sides, processes, figures, memory, and tables of the rows."""
