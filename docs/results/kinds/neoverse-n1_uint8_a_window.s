// a window: ((1, 14, 14, 64), (3, 3, 64, 64), {'padding': 1}), sdot
.LBB4_5:
	ldr	q23, [x7]
	ldur	q24, [x7, #-256]
	ldr	q22, [x7, #256]
	add	x22, x19, #64
	ld1r	{ v25.4s }, [x21], #4
	ld1r	{ v26.4s }, [x22]
	add	x22, x19, #128
	ld1r	{ v27.4s }, [x22]
	add	x22, x19, #192
	subs	x20, x20, #1
	add	x7, x7, #16
	sdot	v21.4s, v25.16b, v24.16b
	ld1r	{ v25.4s }, [x22]
	add	x22, x19, #256
	sdot	v20.4s, v26.16b, v24.16b
	sdot	v21.4s, v26.16b, v23.16b
	sdot	v19.4s, v27.16b, v24.16b
	ld1r	{ v26.4s }, [x22]
	add	x22, x19, #320
	sdot	v20.4s, v27.16b, v23.16b
	sdot	v21.4s, v27.16b, v22.16b
	sdot	v18.4s, v25.16b, v24.16b
	sdot	v19.4s, v25.16b, v23.16b
	sdot	v20.4s, v25.16b, v22.16b
	sdot	v17.4s, v26.16b, v24.16b
	ld1r	{ v25.4s }, [x22]
	add	x22, x19, #384
	sdot	v18.4s, v26.16b, v23.16b
	sdot	v19.4s, v26.16b, v22.16b
	sdot	v17.4s, v25.16b, v23.16b
	ld1r	{ v26.4s }, [x22]
	add	x22, x19, #448
	sdot	v18.4s, v25.16b, v22.16b
	sdot	v16.4s, v25.16b, v24.16b
	sdot	v16.4s, v26.16b, v23.16b
	ld1r	{ v25.4s }, [x22]
	sdot	v0.4s, v26.16b, v24.16b
	add	x22, x19, #512
	sdot	v17.4s, v26.16b, v22.16b
	sdot	v16.4s, v25.16b, v22.16b
	sdot	v0.4s, v25.16b, v23.16b
	ld1r	{ v25.4s }, [x22]
	add	x22, x19, #1024
	sdot	v0.4s, v25.16b, v22.16b
	ld1r	{ v25.4s }, [x22]
	add	x22, x19, #1088
	ld1r	{ v26.4s }, [x22]
	add	x22, x19, #1152
	sdot	v7.4s, v25.16b, v24.16b
	ld1r	{ v25.4s }, [x22]
	add	x22, x19, #1216
	sdot	v6.4s, v26.16b, v24.16b
	sdot	v7.4s, v26.16b, v23.16b
	ld1r	{ v26.4s }, [x22]
	add	x22, x19, #1280
	sdot	v7.4s, v25.16b, v22.16b
	sdot	v6.4s, v25.16b, v23.16b
	sdot	v5.4s, v25.16b, v24.16b
	ld1r	{ v25.4s }, [x22]
	add	x22, x19, #1344
	sdot	v6.4s, v26.16b, v22.16b
	sdot	v5.4s, v26.16b, v23.16b
	sdot	v4.4s, v26.16b, v24.16b
	ld1r	{ v26.4s }, [x22]
	add	x22, x19, #1408
	sdot	v5.4s, v25.16b, v22.16b
	sdot	v4.4s, v25.16b, v23.16b
	sdot	v3.4s, v25.16b, v24.16b
	ld1r	{ v25.4s }, [x22]
	add	x22, x19, #1472
	add	x19, x19, #1536
	sdot	v4.4s, v26.16b, v22.16b
	sdot	v3.4s, v26.16b, v23.16b
	sdot	v2.4s, v26.16b, v24.16b
	ld1r	{ v26.4s }, [x22]
	sdot	v1.4s, v25.16b, v24.16b
	sdot	v2.4s, v25.16b, v23.16b
	sdot	v3.4s, v25.16b, v22.16b
	sdot	v1.4s, v26.16b, v23.16b
	ld1r	{ v23.4s }, [x19]
	sdot	v2.4s, v26.16b, v22.16b
	mov	x19, x21
	sdot	v1.4s, v23.16b, v22.16b
	b.ne	.LBB4_5
