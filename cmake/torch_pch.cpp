// Compiles nothing itself: this target owns the precompiled header of ATen.
