"""The main job on real data: a broker, Spark in and out, a `kill -9` between, and the books balanced."""
