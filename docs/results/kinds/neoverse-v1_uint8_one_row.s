// one row: ((1, 512), (512, 256), {}), usdot
.LBB4_4:
	add	x18, x15, x16
	ldr	q17, [x17]
	add	x16, x16, #4
	ld1r	{ v16.4s }, [x18]
	cmp	x16, #32
	usdot	v3.4s, v16.16b, v17.16b
	ldr	q17, [x17, #2048]
	usdot	v2.4s, v16.16b, v17.16b
	ldr	q17, [x17, #4096]
	usdot	v4.4s, v16.16b, v17.16b
	ldr	q17, [x17, #6144]
	usdot	v5.4s, v16.16b, v17.16b
	ldr	q17, [x17, #8192]
	usdot	v6.4s, v16.16b, v17.16b
	ldr	q17, [x17, #10240]
	usdot	v7.4s, v16.16b, v17.16b
	ldr	q17, [x17, #12288]
	usdot	v0.4s, v16.16b, v17.16b
	ldr	q17, [x17, #14336]
	add	x17, x17, #16
	usdot	v1.4s, v16.16b, v17.16b
	b.ne	.LBB4_4
