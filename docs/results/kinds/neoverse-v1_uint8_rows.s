// rows: ((64, 256), (256, 128), {}), usmmla
.LBB4_7:
	add	x9, x7, x30
	add	x8, x29, x30, lsl #4
	cmp	x30, #248
	add	x30, x30, #8
	ldr	d24, [x9]
	ldr	d25, [x9, #512]
	ldr	d28, [x9, #1024]
	ldr	d29, [x9, #1536]
	add	x11, x9, #256
	ldp	q26, q27, [x8]
	ld1	{ v24.d }[1], [x11]
	add	x11, x9, #768
	ldp	q30, q31, [x8, #32]
	ld1	{ v25.d }[1], [x11]
	add	x11, x9, #1280
	ld1	{ v28.d }[1], [x11]
	add	x11, x9, #1792
	ld1	{ v29.d }[1], [x11]
	usmmla	v22.4s, v24.16b, v26.16b
	usmmla	v21.4s, v24.16b, v27.16b
	usmmla	v23.4s, v24.16b, v30.16b
	usmmla	v20.4s, v24.16b, v31.16b
	usmmla	v19.4s, v25.16b, v26.16b
	usmmla	v18.4s, v25.16b, v27.16b
	usmmla	v16.4s, v25.16b, v30.16b
	usmmla	v17.4s, v25.16b, v31.16b
	usmmla	v4.4s, v28.16b, v26.16b
	usmmla	v6.4s, v28.16b, v27.16b
	usmmla	v5.4s, v28.16b, v30.16b
	usmmla	v7.4s, v28.16b, v31.16b
	usmmla	v0.4s, v29.16b, v26.16b
	usmmla	v2.4s, v29.16b, v27.16b
	usmmla	v1.4s, v29.16b, v30.16b
	usmmla	v3.4s, v29.16b, v31.16b
	b.lo	.LBB4_7
