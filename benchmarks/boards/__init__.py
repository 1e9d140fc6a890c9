"""Jobs for boards that are not here: devices of AArch64 under qemu-user, which `make cross` fetches."""
