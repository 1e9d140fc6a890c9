// rows: ((64, 256), (256, 128), {}), sdot
.LBB4_4:
	mov	x1, x17
	ldr	q29, [x18, #1024]
	ldp	q31, q30, [x18]
	ldp	q28, q26, [x18, #992]
	ldp	q9, q8, [x18, #-32]
	ldr	q27, [x18, #1040]
	add	x2, x17, #8
	ld1r	{ v10.4s }, [x1], #4
	ld1r	{ v14.4s }, [x1]
	add	x1, x17, #260
	ld1r	{ v11.4s }, [x2]
	add	x2, x17, #12
	ld1r	{ v12.4s }, [x2]
	add	x2, x17, #256
	ld1r	{ v13.4s }, [x2]
	sdot	v25.4s, v10.16b, v9.16b
	sdot	v24.4s, v10.16b, v28.16b
	sdot	v25.4s, v14.16b, v8.16b
	sdot	v24.4s, v14.16b, v26.16b
	ld1r	{ v10.4s }, [x1]
	add	x1, x17, #264
	sdot	v25.4s, v11.16b, v31.16b
	sdot	v24.4s, v11.16b, v29.16b
	sdot	v23.4s, v13.16b, v9.16b
	ld1r	{ v11.4s }, [x1]
	add	x1, x17, #268
	sdot	v25.4s, v12.16b, v30.16b
	sdot	v24.4s, v12.16b, v27.16b
	sdot	v22.4s, v13.16b, v28.16b
	ld1r	{ v12.4s }, [x1]
	add	x1, x17, #512
	sdot	v23.4s, v10.16b, v8.16b
	sdot	v22.4s, v10.16b, v26.16b
	subs	x0, x0, #1
	ld1r	{ v10.4s }, [x1]
	add	x1, x17, #516
	add	x18, x18, #64
	sdot	v23.4s, v11.16b, v31.16b
	sdot	v22.4s, v11.16b, v29.16b
	ld1r	{ v11.4s }, [x1]
	add	x1, x17, #520
	sdot	v23.4s, v12.16b, v30.16b
	sdot	v22.4s, v12.16b, v27.16b
	sdot	v21.4s, v10.16b, v9.16b
	ld1r	{ v12.4s }, [x1]
	add	x1, x17, #524
	ld1r	{ v13.4s }, [x1]
	add	x1, x17, #768
	sdot	v20.4s, v10.16b, v28.16b
	ld1r	{ v10.4s }, [x1]
	add	x1, x17, #772
	sdot	v21.4s, v11.16b, v8.16b
	sdot	v20.4s, v11.16b, v26.16b
	ld1r	{ v11.4s }, [x1]
	add	x1, x17, #776
	sdot	v21.4s, v12.16b, v31.16b
	sdot	v20.4s, v12.16b, v29.16b
	sdot	v21.4s, v13.16b, v30.16b
	ld1r	{ v12.4s }, [x1]
	add	x1, x17, #780
	sdot	v20.4s, v13.16b, v27.16b
	ld1r	{ v13.4s }, [x1]
	add	x1, x17, #1024
	sdot	v19.4s, v10.16b, v9.16b
	sdot	v18.4s, v10.16b, v28.16b
	ld1r	{ v10.4s }, [x1]
	add	x1, x17, #1028
	sdot	v19.4s, v11.16b, v8.16b
	sdot	v18.4s, v11.16b, v26.16b
	sdot	v19.4s, v12.16b, v31.16b
	ld1r	{ v11.4s }, [x1]
	add	x1, x17, #1032
	sdot	v18.4s, v12.16b, v29.16b
	ld1r	{ v12.4s }, [x1]
	add	x1, x17, #1036
	sdot	v19.4s, v13.16b, v30.16b
	sdot	v18.4s, v13.16b, v27.16b
	ld1r	{ v13.4s }, [x1]
	add	x1, x17, #1280
	sdot	v17.4s, v10.16b, v9.16b
	sdot	v16.4s, v10.16b, v28.16b
	sdot	v17.4s, v11.16b, v8.16b
	ld1r	{ v10.4s }, [x1]
	add	x1, x17, #1284
	sdot	v16.4s, v11.16b, v26.16b
	ld1r	{ v11.4s }, [x1]
	add	x1, x17, #1288
	sdot	v17.4s, v12.16b, v31.16b
	sdot	v16.4s, v12.16b, v29.16b
	ld1r	{ v12.4s }, [x1]
	add	x1, x17, #1292
	sdot	v17.4s, v13.16b, v30.16b
	sdot	v16.4s, v13.16b, v27.16b
	sdot	v7.4s, v10.16b, v9.16b
	ld1r	{ v13.4s }, [x1]
	add	x1, x17, #1536
	sdot	v6.4s, v10.16b, v28.16b
	ld1r	{ v10.4s }, [x1]
	add	x1, x17, #1540
	sdot	v7.4s, v11.16b, v8.16b
	sdot	v6.4s, v11.16b, v26.16b
	ld1r	{ v11.4s }, [x1]
	add	x1, x17, #1544
	sdot	v7.4s, v12.16b, v31.16b
	sdot	v6.4s, v12.16b, v29.16b
	sdot	v7.4s, v13.16b, v30.16b
	ld1r	{ v12.4s }, [x1]
	add	x1, x17, #1548
	sdot	v6.4s, v13.16b, v27.16b
	ld1r	{ v13.4s }, [x1]
	add	x1, x17, #1792
	sdot	v5.4s, v10.16b, v9.16b
	sdot	v4.4s, v10.16b, v28.16b
	ld1r	{ v10.4s }, [x1]
	add	x1, x17, #1796
	sdot	v5.4s, v11.16b, v8.16b
	sdot	v4.4s, v11.16b, v26.16b
	sdot	v5.4s, v12.16b, v31.16b
	sdot	v4.4s, v12.16b, v29.16b
	sdot	v5.4s, v13.16b, v30.16b
	sdot	v4.4s, v13.16b, v27.16b
	sdot	v3.4s, v10.16b, v9.16b
	ld1r	{ v9.4s }, [x1]
	add	x1, x17, #1800
	sdot	v2.4s, v10.16b, v28.16b
	sdot	v3.4s, v9.16b, v8.16b
	ld1r	{ v8.4s }, [x1]
	add	x1, x17, #1804
	sdot	v2.4s, v9.16b, v26.16b
	add	x17, x17, #16
	sdot	v3.4s, v8.16b, v31.16b
	ld1r	{ v11.4s }, [x1]
	sdot	v2.4s, v8.16b, v29.16b
	sdot	v3.4s, v11.16b, v30.16b
	sdot	v2.4s, v11.16b, v27.16b
	b.ne	.LBB4_4
