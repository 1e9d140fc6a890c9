"""CPUs of the instruction set RISC-V, as an example of a kind of hardware."""
