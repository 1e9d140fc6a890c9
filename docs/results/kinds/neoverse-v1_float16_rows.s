// rows: ((64, 256), (256, 128), {}), fmlal2
.LBB4_7:
	add	x3, x1, #512
	ld1r	{ v8.4s }, [x0], #4
	ldr	q24, [x17]
	ldr	q25, [x17, #2048]
	add	x4, x1, #1024
	add	x5, x1, #1536
	ld1r	{ v9.4s }, [x3]
	add	x6, x1, #2048
	add	x7, x1, #2560
	add	x30, x1, #3072
	add	x1, x1, #3584
	fmlal	v0.4s, v24.4h, v8.h[0]
	fmlal	v1.4s, v25.4h, v8.h[0]
	subs	x18, x18, #1
	add	x17, x17, #16
	fmlal	v2.4s, v24.4h, v9.h[0]
	fmlal	v3.4s, v25.4h, v9.h[0]
	fmlal2	v0.4s, v24.4h, v8.h[1]
	fmlal2	v1.4s, v25.4h, v8.h[1]
	ld1r	{ v8.4s }, [x4]
	fmlal2	v2.4s, v24.4h, v9.h[1]
	fmlal2	v3.4s, v25.4h, v9.h[1]
	ld1r	{ v9.4s }, [x5]
	fmlal	v4.4s, v24.4h, v8.h[0]
	fmlal	v5.4s, v25.4h, v8.h[0]
	fmlal	v6.4s, v24.4h, v9.h[0]
	fmlal	v7.4s, v25.4h, v9.h[0]
	fmlal2	v4.4s, v24.4h, v8.h[1]
	fmlal2	v5.4s, v25.4h, v8.h[1]
	ld1r	{ v8.4s }, [x6]
	fmlal2	v6.4s, v24.4h, v9.h[1]
	fmlal2	v7.4s, v25.4h, v9.h[1]
	ld1r	{ v9.4s }, [x7]
	fmlal	v16.4s, v24.4h, v8.h[0]
	fmlal	v17.4s, v25.4h, v8.h[0]
	fmlal	v19.4s, v24.4h, v9.h[0]
	fmlal	v20.4s, v25.4h, v9.h[0]
	fmlal2	v16.4s, v24.4h, v8.h[1]
	fmlal2	v17.4s, v25.4h, v8.h[1]
	ld1r	{ v8.4s }, [x30]
	fmlal2	v19.4s, v24.4h, v9.h[1]
	fmlal2	v20.4s, v25.4h, v9.h[1]
	ld1r	{ v9.4s }, [x1]
	mov	x1, x0
	fmlal	v21.4s, v24.4h, v8.h[0]
	fmlal	v22.4s, v25.4h, v8.h[0]
	fmlal	v23.4s, v24.4h, v9.h[0]
	fmlal	v18.4s, v25.4h, v9.h[0]
	fmlal2	v21.4s, v24.4h, v8.h[1]
	fmlal2	v22.4s, v25.4h, v8.h[1]
	fmlal2	v23.4s, v24.4h, v9.h[1]
	fmlal2	v18.4s, v25.4h, v9.h[1]
	b.ne	.LBB4_7
