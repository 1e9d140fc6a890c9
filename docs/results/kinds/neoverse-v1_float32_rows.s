// rows: ((64, 256), (256, 128), {}), fmla
.LBB4_7:
	ld1r	{ v24.4s }, [x0], #4
	add	x3, x22, w17, sxtw #2
	subs	x18, x18, #1
	add	w17, w17, #128
	ldp	q25, q26, [x3]
	fmla	v2.4s, v26.4s, v24.4s
	fmla	v1.4s, v25.4s, v24.4s
	ldr	s24, [x1, #1024]
	fmla	v4.4s, v26.4s, v24.s[0]
	fmla	v3.4s, v25.4s, v24.s[0]
	ldr	s24, [x1, #2048]
	fmla	v6.4s, v26.4s, v24.s[0]
	fmla	v5.4s, v25.4s, v24.s[0]
	ldr	s24, [x1, #3072]
	fmla	v16.4s, v26.4s, v24.s[0]
	fmla	v7.4s, v25.4s, v24.s[0]
	ldr	s24, [x1, #4096]
	fmla	v18.4s, v26.4s, v24.s[0]
	fmla	v17.4s, v25.4s, v24.s[0]
	ldr	s24, [x1, #5120]
	fmla	v20.4s, v26.4s, v24.s[0]
	fmla	v19.4s, v25.4s, v24.s[0]
	ldr	s24, [x1, #6144]
	fmla	v22.4s, v26.4s, v24.s[0]
	fmla	v21.4s, v25.4s, v24.s[0]
	ldr	s24, [x1, #7168]
	mov	x1, x0
	fmla	v0.4s, v26.4s, v24.s[0]
	fmla	v23.4s, v25.4s, v24.s[0]
	b.ne	.LBB4_7
