"""One name for each operation the engine needs; the implementation is picked by device. Knows torch and Triton only."""
